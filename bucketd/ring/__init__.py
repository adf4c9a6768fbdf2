"""The ring as operators see and steer it: what stands where, a plan that levels the load, and its application in steps."""
