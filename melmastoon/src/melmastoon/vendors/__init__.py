"""Everything that is said to vendors, in words of the house; their own words stay in here. What stands for the vendors are
simulators that are slow, fail, time out and answer twice."""
