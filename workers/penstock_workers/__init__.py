"""Penstock's workers: they lease jobs from the catalog and run them, under Celery or alone."""
