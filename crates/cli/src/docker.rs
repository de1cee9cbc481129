//! Words that people know from docker, and what each is called here.

/// What is said beneath the complaint about an option that there is not.
pub(crate) fn hint(option: &str) -> Option<&'static str> {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    Some(match name {
        "-v" | "--volume" | "--mount" => {
            "a box sees one directory of yours, at /workspace: --workspace DIR (changes are thrown away) or --workspace DIR:ro"
        }
        "--rm" => "leave it out: what `run` makes is gone when its command ends",
        "-d" => {
            "`blastbox create` makes a box that stays, and `blastbox exec --detach BOX -- COMMAND` leaves a command running in it"
        }
        "-p" | "--publish" | "--expose" => {
            "a box opens no port of this host; --loopback lets its own programs reach each other, and docs/e2b.md says how ports of a daemon's boxes are reached"
        }
        "--name" | "--hostname" => {
            "a box has an id of its own; `blastbox create --label NAME=VALUE` writes something on one that stays"
        }
        "--net" | "--network" => {
            "a box has no network: --allow HOST opens one host, and --loopback gives it 127.0.0.1"
        }
        "-e" => "write --env NAME=VALUE",
        "-w" | "--workdir" => "write --cwd DIR",
        "-m" => "write --memory SIZE",
        "-u" | "--user" => "commands are the box's ordinary user; --sudo lets them become its root",
        "--privileged" | "--cap-add" | "--security-opt" => {
            "no box has such power; --sudo lets its commands become root of the box, and of nothing else"
        }
        "--entrypoint" => "write the program after the options: blastbox run -- PROGRAM ARGUMENTS",
        "--gpus" => "write --gpu --accept gpu-driver-surface",
        "--pids-limit" => "write --pids N",
        _ => return None,
    })
}
