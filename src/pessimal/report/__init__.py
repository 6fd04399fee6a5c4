"""What a comparison says, and the page that shows it."""
