//! The table in the guide names tests that exist and lists every function of the header.
use std::path::Path;

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).expect(path)
}

#[test]
fn tests_of_the_table_exist() {
    let guide = text("docs/arp.md");
    let mut named = 0;
    for quoted in guide.split('`').skip(1).step_by(2) {
        let Some((file, function)) = quoted.split_once(".rs::") else {
            continue;
        };
        let folder = if matches!(file, "misuse" | "programs" | "races") {
            "arp/c/tests/library"
        } else {
            "arp/tests"
        };
        let source = text(&format!("{folder}/{file}.rs"));
        assert!(source.contains(&format!("fn {function}()")), "{quoted}");
        named += 1;
    }
    assert!(named > 40, "{named}");
}

#[test]
fn every_function_is_in_the_guide() {
    let (guide, header) = (text("docs/arp.md"), text("arp/c/include/atomium_rp.h"));
    let mut functions = 0;
    for line in header
        .lines()
        .filter(|line| line.starts_with("extern ") && !line.contains("\"C\""))
    {
        let name = line
            .split('(')
            .next()
            .and_then(|head| head.rsplit([' ', '*']).next())
            .expect(line);
        assert!(guide.contains(&format!("`{name}`")), "{name}");
        functions += 1;
    }
    assert!(functions > 30, "{functions}");
}
