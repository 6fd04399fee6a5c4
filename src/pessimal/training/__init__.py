"""Training reward models on people's own preferences, from a language model, and watching any
training's rewards.

`preference_model` trains from a table of preferences, which `preferences` reads, to a checkpoint's
folder. `callback` watches this or anybody's training, `panel` the rewards of what a policy writes.
"""
