"""`bucketd demo`: real schedules of a product that does not exist, on real servers, with processes killed half-way.

Reading order: run (the five acts), seed (what is scheduled), expect (what must happen, worked out apart from the
engine), target (who receives it), stage (servers and processes), screen (what one sees), verdict (whether it happened).
"""
