"""DeepSeek V4 (Flash and Pro).

Read ``model.py`` first: it is the network. ``config.py`` are its numbers, ``tensors.py`` what a
file must hold, ``plan.py`` what it costs, ``weights.py`` how it is loaded, ``cache.py`` its state.
"""
