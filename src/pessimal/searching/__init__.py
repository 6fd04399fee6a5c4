"""Searching responses of several tokens for the best and the worst: pieces that see an objective,
never a model.

The room, from the inside out:

    spec          the options of a search and of a study; imports no torch
    allowed       which responses count: the tokens allowed, and those that a text gives
    objective     what is maximised, and the counter that every evaluation goes through
    gcg           greedy coordinate gradient
    baselines     random single changes, coordinate ascent, beam
    exact         all responses, the most probable, the certificate
    climb         the search's own loop, which takes the way that pays; the certificate's passes
    procedure     the plan of a budget, the stages, the baselines
    context       what all this needs of a model
    checks        what holds of a result, what fails, what was not tried
    elsewhere     what the response does in other contexts, and how rare it is
    results       the tables and Results of one search
    run           all of it on one model: `search(model, prompts, *, length, …) -> SearchResult`
"""
