"""Events with a point and terms against subscriptions with a box and terms."""
