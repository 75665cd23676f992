"""`python -m ranktop.collectors.agent.gpu_child`: NVML in a process of its own, because a sick driver blocks for ever.

Writes one JSON line a second to standard output: {"status", "why", "gpus": [Gpu…]}. Ends when nobody reads.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ranktop.collectors.stream.facts import Gpu


class Sample(msgspec.Struct):
    """One line."""

    status: str
    why: str | None = None
    gpus: tuple[Gpu, ...] = ()


def _say(sample: Sample) -> None:
    os.write(1, msgspec.json.encode(sample) + b"\n")


def _start(nvml: Any) -> Sample | None:
    """Initialise; the reason why not, if so."""
    try:
        nvml.nvmlInit()
        return None if nvml.nvmlDeviceGetCount() else Sample("no GPU")
    except nvml.NVMLError as err:
        status = {nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no driver", nvml.NVML_ERROR_DRIVER_NOT_LOADED: "no driver"}
        status[nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "driver mismatch"
        return Sample(status.get(err.value, "error"), str(err))


def _one(nvml: Any, index: int) -> Gpu:
    errors: list[str] = []

    def ask(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except nvml.NVMLError as err:
            if err.value == nvml.NVML_ERROR_GPU_IS_LOST:
                errors.append(str(err))
            return None

    handle = ask(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return Gpu(index=index, error=errors[0] if errors else "no answer for this device")
    util = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    power = ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    limit = ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    return Gpu(
        index=index,
        uuid=ask(lambda: nvml.nvmlDeviceGetUUID(handle)),
        name=ask(lambda: nvml.nvmlDeviceGetName(handle)),
        util=util.gpu if util else None,
        mem_used=memory.used if memory else None,
        mem_total=memory.total if memory else None,
        power_w=power / 1000 if power is not None else None,
        power_limit_w=limit / 1000 if limit is not None else None,
        temperature_c=ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        error=errors[0] if errors else None,
    )


def main() -> int:
    """Sample until nobody reads."""
    import pynvml as nvml

    while True:
        failed = _start(nvml)
        if failed is None:
            break
        _say(failed)
        time.sleep(4.0)
    while True:
        _say(Sample("ok", gpus=tuple(_one(nvml, i) for i in range(nvml.nvmlDeviceGetCount()))))
        time.sleep(1.0)


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
