OPEN_ACL_UNSAFE: list[object]
