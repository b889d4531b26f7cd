"""Long coroutines, one module each: run(stop) loops, run_once() is one pass."""
