# packages: lxml
"""A vendored libxml2 and libxslt; callbacks, errors, deep trees."""
from lxml import etree, html

root = etree.XML("<r>" + "".join(f"<i n='{n}'><b>{n * 7}</b>\u00e9</i>" for n in range(3000)) + "</r>")
print(len(root), root.xpath("sum(//i[@n mod 7 = 3]/b)"), root.xpath("count(//i[contains(b, '77')])"))
style = etree.XSLT(etree.XML("""<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><o><xsl:for-each select="//i[position() &lt; 9]"><xsl:sort select="b" data-type="number" order="descending"/><x><xsl:value-of select="b"/></x></xsl:for-each></o></xsl:template></xsl:stylesheet>"""))
print(str(style(root)))
functions = etree.FunctionNamespace("http://f")
functions["twice"] = lambda context, x: x * 2
print(root.xpath("f:twice(count(//b))", namespaces={"f": "http://f"}))
for text in ("<a><b></a>", "<a>&x;</a>", "<a" * 400):
    try:
        etree.fromstring(text)
    except etree.XMLSyntaxError as error:
        print(error)
print(etree.tostring(html.fromstring("<p>one<p>two<br><table><td>x")))
schema = etree.RelaxNG(etree.XML("<element name='r' xmlns='http://relaxng.org/ns/structure/1.0'><zeroOrMore><element name='i'><attribute name='n'/><element name='b'><text/></element><text/></element></zeroOrMore></element>"))
print(schema.validate(root), len(etree.tostring(root, pretty_print=True)), sum(1 for _ in root.iter()))
