"""Jobs: the catalog's tables with leases are the truth, a queue only carries the wake-up."""
