"""The console in a real browser. One package, as its tests share one browser."""
