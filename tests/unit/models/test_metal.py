"""Memory and errors of a Mac's GPU, from texts that MLX gave on Macs; this machine has no such GPU."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from core.models.metal import fault_of, obey_device, wire_weights, working_set_bytes
from core.settings import DEVICE

FAILED = "[METAL] Command buffer execution failed: "


@pytest.mark.parametrize(
    ("told", "why", "is_memory"),
    [
        ("Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory).", "ran out of memory", True),
        ("Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout).", "for too long", False),
        (
            "Ignored (for causing prior/excessive GPU errors) "
            "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored).",
            "failed before",
            False,
        ),
        ("Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity).", "screen", False),
        ("Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang).", "0x03", False),
        ("Internal Error (0000000e:Internal Error)", "memory is low", True),
        ("Discarded (victim of GPU error/recovery)", "refused", False),
        (
            "[metal::Device] Unable to load kernel steel_gemm. Compilation failed: "
            "Unable to reach MTLCompilerService. The process is unavailable because the compiler is no longer active.",
            "did not compile",
            False,
        ),
        ("[metal::malloc] Resource limit (499000) exceeded.", "refused", False),
    ],
)
def test_a_fault_of_the_gpu_is_no_error_that_one_goes_on_after(told: str, why: str, is_memory: bool) -> None:
    fault = fault_of(RuntimeError(told if told.startswith("[") else FAILED + told))
    assert fault
    assert why in fault.why
    assert fault.is_memory == is_memory
    assert not isinstance(fault, Exception)


@pytest.mark.parametrize(
    "said",
    [
        "[matmul] Last dimension of first input with shape (1,2) must match",
        "[metal::malloc] Attempting to allocate 9 which is greater than the maximum allowed buffer size of 8.",
    ],
)
def test_other_errors_are_none(said: str) -> None:
    assert fault_of(ValueError(said)) is None


def test_without_such_a_gpu_nothing_is_told_and_nothing_wired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "set_wired_limit", pytest.fail)
    assert working_set_bytes() == 0
    wire_weights()


@pytest.mark.parametrize(("active", "wired"), [(30, 30), (70, 51)])
def test_what_is_in_memory_is_wired_and_no_more_than_may_be(
    monkeypatch: pytest.MonkeyPatch, active: int, wired: int
) -> None:
    limits: list[Any] = []
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 51})
    monkeypatch.setattr(mx, "get_active_memory", lambda: active)
    monkeypatch.setattr(mx, "set_wired_limit", limits.append)
    wire_weights()
    assert limits == [wired]


@pytest.mark.parametrize(("said", "chosen"), [("cpu", [mx.cpu]), ("gpu", []), ("", [])])
def test_the_environment_chooses_the_cpu_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, said: str, chosen: list[Any]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(mx, "set_default_device", asked.append)
    monkeypatch.setenv(DEVICE, said)
    obey_device()
    assert asked == chosen
