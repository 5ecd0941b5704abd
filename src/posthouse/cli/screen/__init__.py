"""The screen of `posthouse status --watch`: what is shown (`history`, `model`), how it is drawn (`drawing`) and where (`terminal`)."""
