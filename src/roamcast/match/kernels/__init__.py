"""The loops of the match, compiled: texts to numbers, boxes to postings, events to candidates."""
