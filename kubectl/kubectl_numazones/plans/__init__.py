"""Plans that wait for a decision: find, approve or reject them, and follow what becomes of them."""
