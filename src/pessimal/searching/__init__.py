"""Searching responses of several tokens for the best and the worst: pieces that see an objective,
never a model.

The room, from the inside out:

    spec          the options of a search; imports no torch
    objective     what is maximised, and the counter that every evaluation goes through
    allowed       which tokens a response may be made of
    round_trip    which responses a text gives
    gcg           greedy coordinate gradient
    baselines     random single changes, coordinate ascent, beam
    exact         all responses, pairs, exhaustive sweeps, the certificate
    climb         the search's own loop, which takes the way that pays; the certificate's passes
    procedure     the plan of a budget, the stages, the baselines
    context       what all this needs of a model; and the searches of a study's trial
    checks        what holds of a result, what fails, what was not tried
    results       the tables and Results of one search
    run           all of it on one model: `search(model, prompts, *, length, …) -> SearchResult`
"""
