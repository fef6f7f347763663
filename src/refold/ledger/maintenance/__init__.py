"""What is done to a whole ledger, or to a whole run in it: erase, back up, restore, migrate, examine."""
