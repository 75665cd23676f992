"""The GPU child against no library and against a C stand-in for it."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ranktop.collectors.agent.gpu import GpuWatch


def until(watch, status, most=12.0):
    end = time.monotonic() + most
    while time.monotonic() < end:
        got = watch.sample(time.monotonic())
        if got.status == status:
            return got
        time.sleep(0.1)
    raise AssertionError(got)


@pytest.fixture
def stub(tmp_path, monkeypatch):
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("needs a C compiler for the stand-in for libnvidia-ml")
    source = Path(__file__).with_name("nvml_stub.c")
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([cc, "-fPIC", "-shared", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, source], check=True)
    state = tmp_path / "state"
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    monkeypatch.setenv("FAKE_NVML_STATE", str(state))
    return state


@pytest.fixture
def watch():
    watch = GpuWatch()
    yield watch
    watch.stop()


def test_values_a_lost_gpu_and_a_driver_that_hangs(stub, watch):
    stub.write_text("count=2\n0.util=97\n0.power=118000\n1.rc=15\n")
    got = until(watch, "ok")
    assert (got.gpus[0].util, got.gpus[0].power_w) == (97, 118.0) and got.gpus[1].error
    stub.write_text("count=2\n0.delay_ms=60000\n")
    assert until(watch, "unresponsive").gpus[0].util == 97


@pytest.mark.parametrize(
    ("state", "status"), [("init_rc=9", "no driver"), ("init_rc=18", "driver mismatch"), ("count=0", "no GPU")]
)
def test_why_there_is_nothing(stub, watch, state, status):
    stub.write_text(state + "\n")
    until(watch, status)
