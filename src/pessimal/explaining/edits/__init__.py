"""What changes a text, and how two texts differ: the language of rules, distances, differences word
by word, and the smallest edit that still does what the whole one did."""
