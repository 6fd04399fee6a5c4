"""The page that shows published results."""
