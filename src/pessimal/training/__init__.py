"""Training reward models: on people's own preferences, from a real language model; and watching any training's rewards.

`bradley_terry` has the loss, `preferences` the data, `fit` the training, `callback` what watches other people's trainings.
"""
