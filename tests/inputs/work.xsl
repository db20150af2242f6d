<?xml version="1.0"?>
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/list"><xsl:for-each select="item[@n mod 5 = 0]"><xsl:sort select="." order="descending"/>
<xsl:value-of select="concat(@n, ':', .)"/><xsl:text> </xsl:text></xsl:for-each><xsl:value-of select="sum(item/@n)"/></xsl:template>
</xsl:stylesheet>
