"""pessimal: shows what a reward model wants."""

__version__ = "0.1.0"
