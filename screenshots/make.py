"""Pictures of the real app: runs it without a terminal, saves SVG, and PNG through resvg.

    python screenshots/make.py [-o DIR] [--size 80x24]… [--keys k1,k2] (SCENE… | --run RUN_DIRECTORY | --demo)

A scene is a name of tests/tui/pictures.py; --run takes a recorded run directory; --demo starts the demo's real job and
pictures the moment of its stall (the README's pictures).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ranktop.collectors.diagnosis.answer import current
from ranktop.tui.app import RanktopApp
from ranktop.tui.feed import Snapshot

ROOT = Path(__file__).resolve().parent.parent
FONTS = ("/usr/share/fonts/truetype/dejavu", "/usr/share/fonts/truetype/firacode")
FAMILY = "DejaVu Sans Mono"


def scenes() -> dict[str, Callable[[], Snapshot]]:
    """The hand-made pictures of the tests."""
    sys.path.insert(0, str(ROOT / "tests" / "tui"))
    module = importlib.import_module("pictures")
    found: dict[str, Callable[[], Snapshot]] = module.SCENES
    return found


def recorded(path: str) -> Callable[[], Snapshot]:
    """The end of a recorded run."""
    from ranktop.collectors.job.source import load_picture
    from ranktop.collectors.stream.rundir import find

    picture = load_picture(find(path))
    now = max((h.at for h in picture.hosts), default=time.time())
    snapshot = Snapshot(picture=picture, diagnosis=current(picture, now), at=now)
    return lambda: snapshot


def demonstrated() -> Callable[[], Snapshot]:
    """The demo's real job, some seconds after it stalled."""
    from ranktop.collectors.job.source import LiveSource
    from ranktop.tui.commands import demo

    folder = str(Path(tempfile.mkdtemp(prefix="ranktop-"), "demo"))
    Path(folder).mkdir()
    with demo.launched(folder, demo.launch_command("data", 4)) as job:
        run = demo.entered(folder, job)
        if run is None:
            raise SystemExit("the demo's job did not start")
        source, limit, since = LiveSource(run), time.monotonic() + 180, 0.0
        while time.monotonic() < limit:
            picture = source.poll()
            now = time.time()
            snapshot = Snapshot(picture=picture, diagnosis=current(picture, now), at=now)
            if snapshot.diagnosis.state == "stalled":
                since = since or time.monotonic()
                if time.monotonic() > since + 6:
                    return lambda: snapshot
            time.sleep(0.25)
    raise SystemExit("the demo's job did not stall")


def svg(source: Callable[[], Snapshot], size: tuple[int, int], keys: list[str], ascii_only: bool = False) -> str:
    """The app's screen after ``keys`` as SVG."""

    async def main() -> str:
        app = RanktopApp(source, ascii=ascii_only)
        async with app.run_test(size=size) as pilot:
            for key in ["", "", *keys]:
                if key:
                    await pilot.press(key)
                for _ in range(3):
                    app.news()
                    await pilot.pause()
            return app.export_screenshot(title="ranktop")

    return asyncio.run(main())


def png(text: str, scale: float = 1.0) -> bytes:
    """``text`` (SVG) as PNG, in a font whose every glyph the screen uses is one cell wide."""
    import resvg_py

    text = text.replace("Fira Code", FAMILY)
    options: dict[str, Any] = {
        "svg_string": text, "font_dirs": [d for d in FONTS if Path(d).is_dir()], "monospace_family": FAMILY,
        "font_family": FAMILY, "zoom": max(1, round(scale)),
    }  # fmt: skip
    return bytes(resvg_py.svg_to_bytes(**options))


def main() -> int:
    """Make the pictures asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", nargs="*", help="names of hand-made pictures (default: all)")
    parser.add_argument("--run", help="a recorded run directory")
    parser.add_argument("--demo", action="store_true", help="the demo's real job at the moment of its stall")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--size", action="append", help="columns x lines; may be given again")
    parser.add_argument("--keys", default="", help="keys to press first, separated by commas")
    parser.add_argument("--ascii", action="store_true")
    args = parser.parse_args()
    keys = [k for k in args.keys.split(",") if k]
    made = {"run": recorded(args.run)} if args.run else {"stall": demonstrated()} if args.demo else scenes()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.scene or made:
        for size in args.size or ["80x24", "160x48"]:
            columns, lines = map(int, size.split("x"))
            text = svg(made[name], (columns, lines), keys, args.ascii)
            stem = args.output / "-".join([name, *keys, size])
            stem.with_suffix(".svg").write_text(text, encoding="utf-8")
            stem.with_suffix(".png").write_bytes(png(text))
            sys.stdout.write(f"{stem.with_suffix('.png')}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
