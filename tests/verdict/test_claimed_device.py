"""Figures that say that a GPU gave them, of a stage that used none."""

from __future__ import annotations

import pytest

from orchestrator.verdict.artifacts.claimed_device import why, why_triton

H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("content", "has_gpu", "said"),
    [
        ('{"ms": 1.5, "device": "cuda"}', True, "device is 'cuda'"),
        ('{"ms": 1.5, "device": "cuda:0", "host": "x"}', False, "device is 'cuda:0'"),
        (f'{{"ms": 1.5, "gpu": "{H100}"}}', False, f"gpu is '{H100}'"),
        (f'[{{"ms": 1.5, "device_name": "{H100}"}}, {{"ms": 2.5}}]', False, f"device_name is '{H100}'"),
        ('{"n": 1, "tflops": 1.5, "device": "cuda"}\n{"n": 2, "tflops": 2.5, "device": "cuda"}\n', True, "'cuda'"),
        ('{"meta": {"device": "cuda:1"}, "rows": [{"ms": 1.5}]}', True, "device is 'cuda:1'"),
        ('{"results": [{"ms": 1.5, "device": "cuda"}, {"ms": 2.5, "device": "cuda"}]}', True, "'cuda'"),
        ("n,latency,device\n1,1.5,cuda\n2,2.5,cuda\n", True, "'cuda'"),
        ("n;ms;Device\n1;1.5;CUDA\n2;2.5;CUDA\n", True, "Device is 'CUDA'"),
        ("device\tms\ncuda\t1.5\n", True, "'cuda'"),
        ("| device | ms |\n|---|---|\n| cuda | 1.5 |\n| cuda:0 | 2.5 |\n", True, "'cuda'"),
        ("the times:\nms,device\n1.5,cuda\n", True, "'cuda'"),
    ],
)
def test_what_says_that_it_was_measured_on_a_gpu(content: str, has_gpu: bool, said: str) -> None:
    assert said in str(why(content, has_gpu=has_gpu))


@pytest.mark.parametrize(
    ("content", "has_gpu"),
    [
        ('{"ms": 1.5, "device": "cpu"}', True),
        (f'{{"ms": 1.5, "gpu": "{H100}", "device": "cpu"}}', False),
        (f'{{"ms": 1.5, "gpu": "{H100}"}}', True),  # which the machine has, whatever was measured
        ('{"ms": 1.5, "gpu": "H100"}', False),  # what a model was asked for
        ('{"device": "cuda", "lr": 0.1}', True),  # a setting
        (f"name,ms,gpu\nours,1.5,\nbaseline,1.2,{H100}\nnone,1,none\n", False),
        (f"name,ms,device\nours,1.5,cpu\nbaseline,1.2,{H100}\n", False),
        ('{"ms": 1.5, "device": {"name": "cuda"}}', True),
        ('{"ms": 1.5', True),
        ('{"results": [{"ms": 1.5, "device": "cuda"}, {"ms": 2.5, "device": "cpu"}]}', True),
        ("ms: 1.5\ndevice: cuda\n", True),
        ("| device | ms |\n|---|---|\n| cuda | 1.5 |\n| cpu | 2.5 |\n", True),
        ("", True),
    ],
)
def test_what_does_not(content: str, has_gpu: bool) -> None:
    assert why(content, has_gpu=has_gpu) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("n,triton_ms,torch_ms\n64,1.5,2.5\n", "holds triton_ms"),
        ('{"rows": [{"ms": 1.5, "backend": "triton"}], "device": "cpu"}', "says 'triton'"),
        ("provider,tflops\ntorch,1.5\nTriton,2.5\n", "says 'Triton'"),
        ('{"triton": "3.1.0", "ms": 1.5}', None),  # a version
        ('{"backend": "triton", "max_err": 1e-5}', None),
        ("n,tritone_hz,ms\n64,1.5,2.5\n", None),
    ],
)
def test_what_says_that_triton_ran(content: str, said: str | None) -> None:
    assert why_triton(content) == said
