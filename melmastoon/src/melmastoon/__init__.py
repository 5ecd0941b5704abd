"""Melmastoon (Pashto: guest house): a hotel platform of 22 services, the reference that is built on Posthouse."""
