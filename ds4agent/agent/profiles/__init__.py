"""Profiles: what a class of models is told and how it is led. Data and a few strategies.

``choose`` picks one by the facts of a model; the setting ``profile`` overrules it. ``full`` is for
models that work by themselves, ``small`` for those that do not.
"""
