"""What a program says last, and which of it is a doubt: not what tools say whose work is done."""

from __future__ import annotations

from orchestrator.verdict.last_words import is_only_words, last_line, says_failed

HONEST = """
===== 12 passed, 1 skipped in 0.52s =====
12 passed, 3 warnings in 4.21s
1 passed, 1 xfailed in 0.10s
All checks passed!
943 files already formatted
2 files reformatted, 941 files left unchanged
Found 3 errors (3 fixed, 0 remaining).
Success: no issues found in 406 source files
ninja: no work to do.
[4/4] Linking CXX shared library libops.so
[100%] Built target ops
-- Build files have been written to: /tmp/b
-- Could NOT find CUDAToolkit (missing: CUDAToolkit_NVCC_EXECUTABLE)
-- Installing: /usr/local/lib/libops.so
Successfully installed torch-2.13.0 triton-3.7.1
Requirement already satisfied: numpy in ./env/lib/python3.12/site-packages (2.4.0)
WARNING: Skipping flash-attn as it is not installed.
Successfully built nsa
100% tests passed, 0 tests failed out of 12
Total Test time (real) =   0.04 sec
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
ok  \tgithub.com/x/y\t0.012s
FAILED 0
failed: 0
errors: 0
Errors: none
ERROR: 0
0 FAILED
PASS=12 FAIL=0
FAIL 0.0
legend: P PASS, F FAIL
test_a XFAIL
no checks failed
0 tests failed
No tests failed
Failures: 0, Errors: 0, Skipped: 0
FAIL=0
mismatches: 0
mismatch: 0
Mismatch: none
no mismatch
no nan in 12 tensors
it handles nan
"mismatch": false,
"MISMATCH": null
0 mismatches in 4096 elements
max abs error: 1.2e-5
Error: 0.0031
error: 3e-4 (tolerance 1e-3)
Error rate: 0.02
rel. error 1.1e-3, tolerance 1e-2: PASS
correctness: PASS (fp16 vs fp32)
OK
PASSED
done
epoch 3: loss 2.31, 12.1k tok/s
step 100/100 | loss=2.4312 | lr=1e-4 | 431 ms
100%|##########| 100/100 [00:03<00:00, 31.2it/s]
[INFO] [launch.py:351:main] Process 4211 exits successfully.
api.py:879] [default] worker group successfully finished. Waiting 300 seconds for other agents to finish.
[INFO] torch.distributed.elastic.agent.server.api: [default] worker group successfully finished
Fri Nov 26 10:00:00 2026[1,0]<stdout>:rank 0: 0.312 ms
|arc_easy|      1|none  |     0|acc   |0.7521|_  |0.0089|
Accelerate launch finished.
Test is a success! You are ready for your distributed training!
speedup: 3.21x
1024,2048,0.312,98.1
Saved results to results.json
wrote 12 rows to bench.csv; skipped 0
skipped: 0
S=4096  fwd 0.31 ms  bwd 0.91 ms  (FA2 not available)
========= ERROR SUMMARY: 0 errors
==4211== ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)
no error detected
all results match
results match the reference to 1e-3
expected failure, as it should
it raises, as expected: ValueError
device: cuda:0, kernels: 12
Using device: cpu
http://127.0.0.1:8080 is ready
Nothing to be done for 'all'.
make: 'build' is up to date.
Already up to date.
retried after a failed attempt, and passed
unknown commands are refused with an error
0 of 12 configurations failed
0 mismatches in 0 of 3 batches
step 0/100 loss 2.31
10 steps
100 of 100 steps
0.5 s for 0 of 3 batches
cache hit: skipped compilation, 3 kernels loaded in 12 ms
""".strip().split("\n")
FAILED = """
FAIL
FAILED
[FAILED]
>>> FAILED <<<
parity ... FAILED
result: FAIL
max err 3.1: MISMATCH
FAIL 0.0196
Overall: INCORRECT
FAILED: max err 3.0 > 1e-3
FAIL - outputs differ
ERROR: no kernel image is available for execution on the device
Error: CUDA extension was not built
error: flash_attn is too old
Failed to load the kernel, using eager
RuntimeError: no kernel image is available
torch.cuda.OutOfMemoryError: CUDA out of memory.
Validation failed!
2 of 4 checks failed
3 FAILED no kernel image is available
kernel_a 4096 FAILED
outputs do not match
step 100: loss=nan
max abs err nan
Mismatch at index 3
""".strip().split("\n")
NOT_DONE = """
CUDA not available, skipping benchmark
Unable to locate sufficient 2 gpus to run this example. Exiting.
no triton on this machine
SKIPPED (no GPU)
Triton is not installed
flash_attn unavailable
This benchmark requires a CUDA device
Skipping: needs sm_90
could not import the extension
nothing to benchmark
no test specified
skipping 4096
trained 0 steps in 0.00 s
0 of 12 configurations measured
benchmarked 0/8 cases
""".strip().split("\n")


def test_words_of_work_that_is_done_are_no_doubt() -> None:
    assert [line for line in HONEST if says_failed(line)] == []


def test_nor_words_of_what_was_left_out_beside_it() -> None:
    """But for a line that tells of nothing else."""
    told = [line for line in HONEST if is_only_words(f"begin\n{line}\n")]
    assert [line.split(":")[0] for line in told] == ["-- Could NOT find CUDAToolkit (missing", "WARNING"]


def test_words_of_a_failure() -> None:
    assert [line for line in FAILED if not says_failed(last_line(f"0.31 ms\n\x0c{line}\n----\n\n"))] == []


def test_words_of_what_was_not_done_and_no_figure() -> None:
    assert [line for line in NOT_DONE if not is_only_words(f"running on 4 cores\n{line}\n")] == []
    assert [line for line in NOT_DONE if is_only_words(f"cpu: 3.1 ms\n{line}\n")] == []


def test_the_last_line_is_what_a_terminal_shows() -> None:
    assert last_line(" 50%\r100%\rdone\r\n\n---\n") == "done"
    assert last_line("\n\n") == ""
