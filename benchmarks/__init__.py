"""Benchmarks: `./dev bench` measures events end to end beside a naive worker, `./dev chaos` kills what it can."""
