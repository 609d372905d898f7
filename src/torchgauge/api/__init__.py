"""The one place that joins target, measurement and record; the command line calls only this."""
