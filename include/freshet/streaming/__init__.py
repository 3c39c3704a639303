"""The enrich job: the only package, besides quality, that imports pyspark."""
