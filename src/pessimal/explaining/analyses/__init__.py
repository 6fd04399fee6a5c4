"""Statistics over the table of outcomes (`pessimal.explaining.outcomes`): a function from tables to a
table each, with intervals over comparisons."""
