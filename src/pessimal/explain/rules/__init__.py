"""Rules that change English texts along an attribute: offline, deterministic, and silent where none applies.

`passage`, `replacement`, `draw` and `rules` are the tools; the other files hold the rules of one attribute or of a few
that are close; `registry` lists them all. Knows texts and attributes. Does not know rewards, nor any judge of the
same attributes: the word lists here are not shared with one, or a judge would only find its own words again.
"""
