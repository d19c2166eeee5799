"""The cache simulator against cachegrind: the same tiled forward pass, once as an address trace, once as a C program.

A small C program with the loop order of FlashAttention-2 (r queries with their outputs stay, keys and values stream) is
written to a temporary folder, compiled and run under valgrind's cachegrind; its data misses are set beside the misses
of the LRU simulator on the trace of the schedule with the same tiles. They are two programs: the compiler keeps sums in
registers and lays scratch out in its own way, so agreement is expected within some percent where the tile fits the
cache, and not where it does not.

Needs gcc and valgrind; says so and ends where one is missing.

Run: python benchmarks/cachegrind.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from results import write_result
from wattention.iocomplexity.cache.lru import simulate
from wattention.iocomplexity.execution.trace import record
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.schedules.base import SCHEDULES

TOKENS, HEAD_DIM, LINE_BYTES, WAYS, WORD_BYTES = 384, 32, 64, 8, 4
CACHES_BYTES = (16384, 32768, 65536)

PROGRAM = r"""
#include <math.h>
#include <stdlib.h>
enum { N = %(tokens)d, D = %(dim)d, R = %(rows)d };
static float Q[N][D], K[N][D], V[N][D], O[N][D], L[N], m[R], l[R], s[R];
static unsigned state = 1;
static float draw(void) { state = state * 1103515245u + 12345u; return (state >> 16) / 65536.0f - 0.5f; }
int main(void) {
  if (!%(run)d) return 0;
  for (int i = 0; i < N; i++)
    for (int a = 0; a < D; a++) { Q[i][a] = draw(); K[i][a] = draw(); V[i][a] = draw(); }
  if (%(run)d < 2) return (int)(Q[1][1] + expf(K[1][1]) + logf(V[1][1] * V[1][1] + 1));
  for (int block = 0; block < N; block += R) {
    int r = N - block < R ? N - block : R;
    for (int i = 0; i < r; i++) {
      m[i] = -1e30f; l[i] = 0;
      for (int a = 0; a < D; a++) O[block + i][a] = 0;
    }
    for (int j = 0; j < N; j++) {
      for (int i = 0; i < r; i++) {
        float sum = 0;
        for (int a = 0; a < D; a++) sum += Q[block + i][a] * K[j][a];
        float next = m[i] > sum ? m[i] : sum, old = expf(m[i] - next);
        s[i] = expf(sum - next); l[i] = l[i] * old + s[i]; m[i] = next;
        for (int a = 0; a < D; a++) O[block + i][a] = O[block + i][a] * old + s[i] * V[j][a];
      }
    }
    for (int i = 0; i < r; i++) {
      for (int a = 0; a < D; a++) O[block + i][a] /= l[i];
      L[block + i] = m[i] + logf(l[i]);
    }
  }
  return (int)(O[1][1] + L[1]);
}
"""


def cachegrind_misses(rows: int, cache_bytes: int, folder: Path) -> int:
    """Last-level data misses of the attention loops alone: with them, less without them (inputs are made in both)."""
    misses = []
    for run in (2, 1):
        source, binary = folder / f"attention{run}.c", folder / f"attention{run}"
        source.write_text(PROGRAM % {"tokens": TOKENS, "dim": HEAD_DIM, "rows": rows, "run": run})
        subprocess.run(["gcc", "-O1", "-o", binary, source, "-lm"], check=True, capture_output=True)
        cache = f"{cache_bytes},{WAYS},{LINE_BYTES}"
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--D1={cache}", f"--LL={cache}",
                   "--cachegrind-out-file=/dev/null", str(binary)]  # fmt: skip
        text = subprocess.run(command, check=False, capture_output=True, text=True).stderr
        found = re.search(r"D1\s+misses:\s+([\d,]+)", text)
        if found is None:
            raise SystemExit(f"cachegrind said nothing about D1 misses:\n{text}")
        misses.append(int(found.group(1).replace(",", "")))
    return misses[0] - misses[1]


def main() -> None:
    missing = [tool for tool in ("gcc", "valgrind") if shutil.which(tool) is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed")
        return
    problem, schedule = attention_problem(tokens=TOKENS, head_dim=HEAD_DIM), SCHEDULES.load("flash2")
    table = []
    print(f"FlashAttention-2 order, N = {TOKENS}, d = {HEAD_DIM}, fp32, {WAYS} ways, lines of {LINE_BYTES} bytes")
    print(f"{'cache':>8}{'rows':>6}{'tile':>8}{'cachegrind':>12}{'simulator':>11}{'ratio':>7}   misses")
    with tempfile.TemporaryDirectory() as folder:
        for cache_bytes in CACHES_BYTES:
            for share in (0.5, 2.0):
                rows = max(1, int(share * cache_bytes / WORD_BYTES / (2 * HEAD_DIM + 3)))
                rows = min(rows, TOKENS)
                tiles = {"rows": rows, "keys": 1}
                trace = record(schedule, problem, 1 << 20, tiles=tiles, word_bytes=WORD_BYTES)
                ours = simulate(trace, cache_bytes, LINE_BYTES, WAYS).misses
                theirs = cachegrind_misses(rows, cache_bytes, Path(folder))
                tile_bytes = rows * (2 * HEAD_DIM + 3) * WORD_BYTES
                table.append({"cache_bytes": cache_bytes, "rows": rows, "tile_bytes": tile_bytes,
                              "cachegrind_misses": theirs, "simulator_misses": ours})  # fmt: skip
                print(f"{cache_bytes:8d}{rows:6d}{tile_bytes:8d}{theirs:12d}{ours:11d}{ours / theirs:7.2f}")
    version = subprocess.run(["valgrind", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    write_result("cachegrind", {"valgrind": version, "table": table})


if __name__ == "__main__":
    main()
