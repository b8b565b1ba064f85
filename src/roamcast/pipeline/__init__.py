"""The Spark pipeline: journal in, letters out. The only package that imports pyspark."""
