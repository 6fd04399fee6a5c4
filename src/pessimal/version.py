"""The version of the package; everything else that states one reads it here."""

__version__ = "0.3.0"
