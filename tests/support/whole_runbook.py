"""A runbook with every key."""

GOOD = """
name: nsa-validate
requires: [cuda]
environment: {requires: [torch, triton], optional: [flash-attn], extra: [pytest, "numpy<2.3"]}
env: {PYTHONPATH: "."}
limits: {wall: 3600, silence: 600}
stages:
  - {name: sanity, run: [python, -m, nsa.sanity], expect: {artifacts: [{path: sanity.out, from: stdout}]}}
  - name: triton_fwd
    run: [python, -m, pytest, -q, nsa/tests/test_triton_sel_parity_gpu.py]
    env: {NSA_TEST_TRITON_SEL: "1"}
    paths: []
    needs: [sanity]
    when: [cuda, "sm>=80", "has:flash-attn"]
    required: true
    limits: {wall: 300}
    expect:
      tests: {min_passed: 1, allow_skips: [], must_pass: []}
      routes: {selected: triton}
      artifacts:
        - {path: triton_fwd.txt, from: stdout}
        - {path: decode.csv, kind: csv, columns: [S, ms_total], min_rows: 4,
           checks: [{finite: all}, {column: cmp_pct, max: 100}, {sum: [cmp_pct, sel_pct], near: 100, within: 2},
                    {equal: [reads_actual, reads_expected]}, {column: roofline_frac, max: 1}]}
        - {path: routing.json, kind: json, keys: [selected]}
        - {path: sel_ranges.jsonl, kind: jsonl, min_rows: 1}
"""
