//! What a recipe may say, and what is refused.

use super::*;

fn steps(text: &str) -> Vec<What> {
    parse(text).unwrap().steps.into_iter().map(|step| step.what).collect()
}

fn env(pairs: &[(&str, &str)]) -> What {
    What::Env(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn sh(script: &str) -> What {
    What::Run(vec!["/bin/sh".into(), "-c".into(), script.into()])
}

#[test]
fn a_recipe_of_every_kind_of_step_is_read() {
    let text = "# a comment\nFROM base\n\nENV A=1 B=\"two words\"\nENV PATH=/opt:$PATH\nWORKDIR /app\nCOPY a b/ ./\nUSER user\n\
                RUN echo $A \\\n    # between\n  && true\nRUN [\"ls\", \"-l\"]\nCMD [\"serve\"]\n";
    let recipe = parse(text).unwrap();
    assert_eq!(recipe.from, "base");
    assert_eq!(
        steps(text),
        [
            env(&[("A", "1"), ("B", "two words")]),
            env(&[("PATH", "/opt:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")]),
            What::Workdir("/app".into()),
            What::Copy { from: vec!["a".into(), "b/".into()], to: "/app/".into() },
            What::User(RecipeUser::User),
            sh("echo $A   && true"),
            What::Run(vec!["ls".into(), "-l".into()]),
            What::Command(vec!["serve".into()]),
        ]
    );
    assert_eq!(recipe.steps.iter().map(|step| step.line).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9, 12, 13]);
}

#[test]
fn paths_are_plain_and_follow_the_working_directory() {
    assert_eq!(
        steps("FROM x\nWORKDIR a\nWORKDIR b/../c\nCOPY f g\nCOPY f /x/\nENV D=/d\nWORKDIR $D\n"),
        [
            What::Workdir("/a".into()),
            What::Workdir("/a/c".into()),
            What::Copy { from: vec!["f".into()], to: "/a/c/g".into() },
            What::Copy { from: vec!["f".into()], to: "/x/".into() },
            env(&[("D", "/d")]),
            What::Workdir("/d".into()),
        ]
    );
}

#[test]
fn an_entry_point_comes_before_its_command() {
    let last = steps("FROM x\nENTRYPOINT [\"a\"]\nCMD [\"b\"]\n").pop();
    assert_eq!(last, Some(What::Command(vec!["a".into(), "b".into()])));
}

#[test]
fn what_is_not_supported_is_refused_by_line_and_name() {
    for (text, line, named) in [
        ("FROM a\nADD x /y\n", 2, "the instruction ADD"),
        ("FROM a AS b\n", 1, "several stages"),
        ("FROM a\nFROM b\n", 2, "several stages"),
        ("FROM a\n\nRUN --mount=type=cache x\n", 3, "an option of RUN"),
        ("FROM a\nCOPY --from=b x y\n", 2, "an option of COPY"),
        ("FROM a\nCOPY *.py /x\n", 2, "a pattern"),
        ("FROM a\nRUN cat <<EOF\nx\nEOF\n", 2, "here-document"),
        ("FROM a\nUSER www-data\n", 2, "neither root nor user"),
        ("FROM a\nHEALTHCHECK NONE\n", 2, "HEALTHCHECK"),
        ("# escape=`\nFROM a\n", 1, "escape"),
    ] {
        match parse(text) {
            Err(RecipeError::Unsupported { line: at, what }) => {
                assert!(at == line && what.contains(named), "{text}: {at}: {what}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn what_means_nothing_is_refused_by_line() {
    for (text, line) in [
        ("RUN x\n", 1),
        ("FROM a\nENV =x\n", 2),
        ("FROM a\nENV A\n", 2),
        ("FROM a\nENV A=$B\n", 2),
        ("FROM a\nENV A=${B:-c}\n", 2),
        ("FROM a\nENV A='x\n", 2),
        ("FROM a\nCOPY x\n", 2),
        ("FROM a\nCOPY ../x /y\n", 2),
        ("FROM a\nRUN\n", 2),
        ("FROM a\nRUN [\"x\"\n", 2),
        ("FROM\n", 1),
    ] {
        match parse(text) {
            Err(RecipeError::Wrong { line: at, .. }) => assert_eq!(at, line, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert_eq!(parse("# nothing\n"), Err(RecipeError::Empty));
    assert_eq!(parse(&"#".repeat(MAX_RECIPE + 1)), Err(RecipeError::TooLong { most: MAX_RECIPE }));
}

#[test]
fn a_dollar_that_is_quoted_is_a_dollar() {
    assert_eq!(steps("FROM a\nENV A='$x' B=\\$y\n"), [env(&[("A", "$x"), ("B", "$y")])]);
}
