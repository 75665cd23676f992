"""The package list equals the folders, nothing leaks as a top-level name, and the house's rules hold."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parent.parent
SOURCES = sorted(p for d in ("collectors", "tui") for p in (ROOT / d).rglob("*.py"))


def test_every_package_folder_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {"ranktop"} | {
        ".".join(("ranktop", *init.parent.relative_to(ROOT).parts))
        for d in ("collectors", "tui")
        for init in (ROOT / d).rglob("__init__.py")
    }
    assert sorted(declared) == sorted(folders)


def test_no_top_level_name_leaks() -> None:
    code = "import importlib.util as u; print(u.find_spec('tui'), u.find_spec('collectors'))"
    out = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True).stdout
    assert out.split() == ["None", "None"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_is_longer_than_500_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500


def test_the_recorder_parses_on_python_3_9_and_its_bootstrap_on_2_7() -> None:
    for path in (ROOT / "collectors" / "recorder").rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
    bootstrap = (ROOT / "collectors/recorder/bootstrap/sitecustomize.py").read_text()
    tree = ast.parse(bootstrap, feature_version=(3, 4))
    modern = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Nonlocal, ast.YieldFrom)
    assert not [node for node in ast.walk(tree) if isinstance(node, modern)]
    assert bootstrap.isascii(), "Python 2 reads no other source without a coding line"


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("ranktop.tui.cli", {"textual", "rich", "msgspec", "asyncio"}),
        ("ranktop.tui.commands.status", {"textual", "rich", "asyncio", "pynvml", "watchdog"}),
        ("ranktop.tui.commands.wait", {"textual", "rich"}),
        ("ranktop.collectors.agent.__main__", {"textual", "rich", "torch"}),
        ("ranktop.collectors.launcher", {"textual", "rich", "torch", "msgspec"}),
        ("ranktop.collectors.recorder", {"ranktop.collectors.stream", "msgspec", "torch"}),
    ],
)
def test_what_a_module_must_not_import(module: str, forbidden: set[str]) -> None:
    code = f"import sys, {module}; print(' '.join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert forbidden.isdisjoint(out), sorted(forbidden.intersection(out))


def test_this_package_is_the_one_installed() -> None:
    spec = importlib.util.find_spec("ranktop.collectors.stream")
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).resolve().is_relative_to(ROOT)
