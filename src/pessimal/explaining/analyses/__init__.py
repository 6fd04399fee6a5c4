"""Statistics over the table of outcomes (`pessimal.explaining.outcomes`): each a function from a
table to a table, with intervals over comparisons."""
