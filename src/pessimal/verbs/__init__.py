"""One file a verb; each reads like the script of its experiment."""
