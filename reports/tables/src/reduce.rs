//! Forms of a name, each with less than the one before.

use std::borrow::Cow;

use crate::call_path::{self, Call};
use crate::parse::{self, Node};
use crate::{ELLIPSIS, columns};

/// Inline namespaces of standard libraries.
const INLINE_NAMESPACES: [&str; 7] = [
    "__cxx11",
    "__1",
    "__2",
    "__ndk1",
    "__cxx1998",
    "_V2",
    "__debug",
];

/// Template arguments that are defaults wherever they are not the first argument.
const DEFAULTS: [&str; 10] = [
    "std::allocator<",
    "std::pmr::polymorphic_allocator<",
    "__gnu_cxx::new_allocator<",
    "std::char_traits<",
    "std::less<",
    "std::hash<",
    "std::equal_to<",
    "std::default_delete<",
    "std::regex_traits<",
    "alloc::alloc::Global",
];

/// Templates of characters with the names that they have for `char`.
const OF_CHAR: [(&str, &str); 14] = [
    ("basic_string", "string"),
    ("basic_string_view", "string_view"),
    ("basic_ostream", "ostream"),
    ("basic_istream", "istream"),
    ("basic_iostream", "iostream"),
    ("basic_ofstream", "ofstream"),
    ("basic_ifstream", "ifstream"),
    ("basic_fstream", "fstream"),
    ("basic_ostringstream", "ostringstream"),
    ("basic_istringstream", "istringstream"),
    ("basic_stringstream", "stringstream"),
    ("basic_stringbuf", "stringbuf"),
    ("basic_streambuf", "streambuf"),
    ("basic_filebuf", "filebuf"),
];

/// Words that are before the name of what they belong to. They are no return type.
const BELONGINGS: [&str; 4] = ["thunk", "guard", "vtable", "typeinfo"];

/// Levels of brackets whose contents go one by one.
const DEEPEST: usize = 3;

/// A name and its shorter forms, longest first.
pub struct Forms(Vec<String>);

/// Columns of a name in a file, where nothing is cut: arguments of templates and closures are left out of longer ones.
const READABLE: usize = 80;

impl Forms {
    /// The forms of a name, or of a call path; the first one is the name.
    pub fn new(name: &str) -> Self {
        if call_path::is_path(name) {
            return Self::of_path(name);
        }
        let call = Call::of(name);
        let mut forms = vec![name.to_owned()];
        let mut add = |core: &str| {
            let text = format!("{}{core}{}", call.short_object(), call.place);
            if forms.last() != Some(&text) && !core.is_empty() {
                forms.push(text);
            }
        };
        add(call.name);
        // A path of a file has no parts that are less important than others.
        if let Some(mut nodes) = parse::parse(call.name).filter(|_| !name.starts_with('/')) {
            let mut add = |nodes: &[Node]| add(&parse::text(nodes));
            nodes = without_noise(nodes);
            add(&nodes);
            nodes = without_result(nodes);
            add(&nodes);
            empty_parameters(&mut nodes);
            add(&nodes);
            shorten_paths(&mut nodes, 0);
            add(&nodes);
            empty_closures(&mut nodes);
            add(&nodes);
            for depth in (1..=DEEPEST).rev() {
                empty_arguments(&mut nodes, depth);
                add(&nodes);
            }
        }
        if let Some(last) = forms.last()
            && !call.object.is_empty()
        {
            let rest = &last[call.short_object().len()..];
            forms.push(format!("{ELLIPSIS}:{rest}"));
        }
        Self(forms)
    }

    /// The forms of a call path: all of its calls in their first form, in their second one, and so on.
    fn of_path(path: &str) -> Self {
        let calls: Vec<Self> = call_path::calls(path).map(Self::new).collect();
        let most = calls.iter().map(Self::len).max().unwrap_or(1);
        let mut forms: Vec<String> = Vec::new();
        for level in 0..most {
            let texts: Vec<&str> = calls.iter().map(|call| call.at(level)).collect();
            let text = texts.join(call_path::CALLED_BY);
            if forms.last() != Some(&text) {
                forms.push(text);
            }
        }
        Self(forms)
    }

    /// The name as files have it: nothing is cut, but arguments of templates and closures are left out of a long one.
    pub fn readable(name: &str) -> Cow<'_, str> {
        if columns(name) <= READABLE {
            return Cow::Borrowed(name);
        }
        if call_path::is_path(name) {
            let calls: Vec<Cow<'_, str>> = call_path::calls(name).map(Self::readable).collect();
            return Cow::Owned(calls.join(call_path::CALLED_BY));
        }
        let forms = Self::new(name);
        let fitting = forms.iter().find(|form| columns(form) <= READABLE);
        Cow::Owned(fitting.unwrap_or(forms.shortest()).to_owned())
    }

    /// All of them, longest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Form number `level`, or the shortest one.
    pub fn at(&self, level: usize) -> &str {
        self.0.get(level).map_or(self.shortest(), String::as_str)
    }

    /// Number of forms.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The shortest one.
    pub fn shortest(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }
}

/// Leaves out inline namespaces, ABI tags, hashes and default arguments.
fn without_noise(nodes: Vec<Node>) -> Vec<Node> {
    let mut out: Vec<Node> = Vec::with_capacity(nodes.len());
    let mut nodes = nodes.into_iter().peekable();
    while let Some(node) = nodes.next() {
        match node {
            Node::Word(word) => {
                let is_inline = INLINE_NAMESPACES.contains(&&*word);
                if is_inline && nodes.next_if(|next| next.is("::")).is_some() {
                    continue;
                }
                let is_last = nodes.peek().is_none();
                if is_last && is_hash(&word) && out.last().is_some_and(|n| n.is("::")) {
                    out.pop();
                    continue;
                }
                out.push(Node::Word(word));
            }
            Node::Group('[', inner, close) => {
                let is_tag = inner.first().is_some_and(|n| n.is("abi"));
                let is_hash = matches!(inner.as_slice(), [Node::Word(word)]
                    if word.len() == 16 && word.bytes().all(|b| b.is_ascii_hexdigit()));
                if !is_tag && !is_hash {
                    out.push(Node::Group('[', without_noise(inner), close));
                }
            }
            Node::Group('<', inner, close) => {
                let inner = without_defaults(without_noise(inner));
                if !is_renamed_for_char(&mut out, &inner) {
                    out.push(Node::Group('<', inner, close));
                }
            }
            Node::Group(open, inner, close) => {
                out.push(Node::Group(open, without_noise(inner), close));
            }
        }
    }
    out
}

/// A hash that older Rust compilers append to symbols: `h` and 16 digits.
fn is_hash(word: &str) -> bool {
    let digits = word.strip_prefix('h').unwrap_or("");
    digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The arguments of a template without those that are defaults, and without a space at the end.
fn without_defaults(inner: Vec<Node>) -> Vec<Node> {
    let mut out: Vec<Node> = Vec::with_capacity(inner.len());
    for (i, argument) in inner.split(|node| node.is(",")).enumerate() {
        let text = parse::text(argument);
        let is_default = DEFAULTS.iter().any(|d| text.trim_start().starts_with(d));
        if i == 0 || !is_default {
            if i != 0 {
                out.push(Node::word(","));
            }
            out.extend_from_slice(argument);
        }
    }
    while out.last().is_some_and(|node| node.is(" ")) {
        out.pop();
    }
    out
}

/// Renames the template whose name ends `out` if its only argument is `char` and it has a name for that.
fn is_renamed_for_char(out: &mut [Node], arguments: &[Node]) -> bool {
    let [argument] = arguments else { return false };
    let Some(Node::Word(word)) = out.last_mut().filter(|_| argument.is("char")) else {
        return false;
    };
    match OF_CHAR.iter().find(|(template, _)| word == template) {
        Some((_, name)) => {
            (*name).clone_into(word);
            true
        }
        None => false,
    }
}

/// Leaves out the type in front of a function's name.
fn without_result(nodes: Vec<Node>) -> Vec<Node> {
    let Some(parameters) = parameters(&nodes) else {
        return nodes;
    };
    let is_belonging = |n: &Node| BELONGINGS.iter().any(|b| n.is(b));
    let space = nodes[..parameters].iter().rposition(|n| n.is(" "));
    match space {
        Some(space) if !nodes[..space].iter().any(is_belonging) => nodes[space + 1..].to_vec(),
        _ => nodes,
    }
}

/// Where the brackets with a function's parameters are: the last ones, after a name or its template arguments.
fn parameters(nodes: &[Node]) -> Option<usize> {
    let at = nodes.iter().rposition(|n| n.opens('('))?;
    let before = nodes[..at].last()?;
    (before.is_name() || before.opens('<') || before.opens('[') || before.opens('{')).then_some(at)
}

fn empty_parameters(nodes: &mut [Node]) {
    if let Some(at) = parameters(nodes)
        && let Node::Group(_, inner, _) = &mut nodes[at]
    {
        empty(inner);
    }
}

/// Leaves out the parameters in the names of closures: `{lambda(…)#1}`.
fn empty_closures(nodes: &mut [Node]) {
    for node in nodes {
        if let Node::Group(open, inner, _) = node {
            let is_closure = *open == '{';
            for part in inner.iter_mut() {
                if let Node::Group('(', parameters, _) = part
                    && is_closure
                {
                    empty(parameters);
                }
            }
            empty_closures(inner);
        }
    }
}

/// Replaces what is in brackets by an ellipsis.
fn empty(inner: &mut Vec<Node>) {
    if parse::text(inner).chars().count() > 1 {
        *inner = vec![Node::Word(ELLIPSIS.to_string())];
    }
}

/// Leaves the last names of the paths in brackets: `Vec` of `alloc::vec::Vec`.
fn shorten_paths(nodes: &mut Vec<Node>, depth: usize) {
    let mut out: Vec<Node> = Vec::with_capacity(nodes.len());
    for mut node in nodes.drain(..) {
        if let Node::Group(_, inner, _) = &mut node {
            shorten_paths(inner, depth + 1);
        }
        let is_path = depth > 0 && node.is_name() && out.last().is_some_and(|n| n.is("::"));
        if is_path && out.len() >= 2 && out[out.len() - 2].is_name() {
            out.truncate(out.len() - 2);
        }
        out.push(node);
    }
    *nodes = out;
}

/// Replaces the arguments of templates whose brackets have at least this depth. Brackets that
/// begin a name hold a type, which is no argument.
fn empty_arguments(nodes: &mut [Node], depth: usize) {
    for i in 0..nodes.len() {
        let is_argument = i > 0 && (nodes[i - 1].is_name() || nodes[i - 1].is("::"));
        if let Node::Group(open, inner, _) = &mut nodes[i] {
            match (*open, depth) {
                ('<', 0 | 1) if is_argument => empty(inner),
                _ => empty_arguments(inner, depth.saturating_sub(1)),
            }
        }
    }
}
