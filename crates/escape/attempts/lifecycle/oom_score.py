# Below what every ordinary process of the host has: then others are ended in its place.
try:
    with open("/proc/self/oom_score_adj", "w") as file: file.write("-1")
except OSError as error:
    if CONTROL and not able(24): na("this caller lacks CAP_SYS_RESOURCE, without which nobody lowers it")
    held("oom_score_adj: " + refused(error))
escaped("oom_score_adj is " + open("/proc/self/oom_score_adj").read().strip())
