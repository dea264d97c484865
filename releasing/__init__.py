"""What a release is made of: facts in one place, files derived from them, and the checks before a tag."""
