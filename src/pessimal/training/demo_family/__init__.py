"""Trains the siblings of the demo family, whose data and plants stand in `pessimal.demo`."""
