"""Searching responses of several tokens for the best and the worst: pieces that see an objective,
never a model.

The room, from the inside out:

    spec          the options of a search and of a study; imports no torch
    allowed       which responses count: the tokens allowed, and those that a text gives
    objective     what is maximised, and the counter that every evaluation goes through
    exact         all responses, the most probable, the certificate
    climb         the search's own loop, which takes the way that pays; the certificate's passes
    procedure     the plan of a budget, the stages, the baseline
    context       what all this needs of a model
    elsewhere     what the response does in other contexts
    results       the tables of one search, which claims hold of it, and its Results
    run           all of it on one model: `search(model, prompts, *, length, …) -> SearchResult`
"""
